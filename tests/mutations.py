"""What is changed in the source for every row of docs/equations.md, and which cases of the named test are run then.

Every change breaks the equation, not the program: a sign, a factor, a term. Its text must occur exactly once in the
source, in whatever file: a table that the code has left behind is noticed, and code that moves is found.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """Cases of the named test, as pytest writes them ("" where it has none), and texts of the source with others."""

    cases: tuple[str, ...]
    changes: dict[str, str]


ROWS: dict[str, Row] = {
    "(1)": Row(
        ("[False-1.0-3-blocks]", "[True-100.0-9-fused]"),
        {
            "return engine(head.beta * head.logit_direction(x)": "return engine(head.logit_direction(x)",
            "(x @ self._query.T) @ self._key": "(x @ self._key.T) @ self._query",
            "direction if self._key_bias is None else direction + self._key_bias": "direction",
            "(as_weights(weights, y.shape[-2])).log()": "(as_weights(weights, y.shape[-2]))",
        },
    ),
    "(2)": Row(
        ("[False-1]", "[True-3]"),
        {
            "return project(working, push).to(x.dtype)": "return push.to(x.dtype)",
            "return v - (x * v).sum(-1, keepdim=True) * x": "return v + (x * v).sum(-1, keepdim=True) * x",
            "return unit(x + h * field(x))": "return unit(x - h * field(x))",
            "m = m @ factor.to(m).T": "m = m @ factor.to(m)",
        },
    ),
    "(3)": Row(
        ("",),
        {
            "logs, chosen = log_weights(weights, raised(tokens))": "logs, chosen = None",
            "(as_weights(weights, y.shape[-2])).log()": "(as_weights(weights, y.shape[-2])).log() * 2",
        },
    ),
    "(4)": Row(
        ("",),
        {
            "group.kappa * (group.chord**2 - near**2) / 2": "group.kappa * (group.chord**2 - near**2)",
            "most = (group.kappa + group.spread)": "most = (group.kappa - group.spread)",
        },
    ),
    "(5)": Row(
        ("[0-general-3]",),
        {
            "key = z @ self.B / size[:, :, None]": "key = z @ self.B.T / size[:, :, None]",
            "speed = np.linalg.norm(key, axis=2)": "speed = np.ones(key.shape[:2])",
            "return self.A - np.linalg.eigvals(self.A)": "return self.A.T - np.linalg.eigvals(self.A)",
        },
    ),
    "(6)": Row(
        ("",),
        {
            "@ self.generator.T) * (clock / k)": "@ self.generator.T) * (clock / 2)",
            "return self.A - np.linalg.eigvals(self.A)": "return self.A.T - np.linalg.eigvals(self.A)",
        },
    ),
    "(7)": Row(
        ("[True-3-1]", "[False-8-2]", "[False-32-3]"),
        {
            "dual=basis[:, :m].T - X @ basis[:, m:].T": "dual=basis[:, :m].T + X @ basis[:, m:].T",
            "group.basis @ power @ group.dual for power": "group.basis @ power @ group.basis.T for power",
            "limits[new] = _directions(image[new], matrix)": "limits[new] = image[new]",
            "image @ left[:, :1] > 0, left[:, 0], -left[:, 0]": "image @ left[:, :1] > 0, left[:, 0], left[:, 0]",
        },
    ),
    "(8′)": Row(
        ("[0]", "[1]", "[2]", "[3]"),
        {
            "dual=basis[:, :m].T - X @ basis[:, m:].T": "dual=basis[:, :m].T + X @ basis[:, m:].T",
            "group.basis @ power @ group.dual for power": "group.basis @ power @ group.basis.T for power",
        },
    ),
    "(8)": Row(
        ("[0]", "[1]", "[2]", "[3]"),
        {
            "token_in_clock=end.gap,": "token_in_clock=end.gap / 2,",
            "return self.mu - self.next_real": "return self.mu + self.next_real",
        },
    ),
    "(9)": Row(
        ("[1-1]", "[1-2]"),
        {
            "factor = min(1.0, end.dimension / p)": "factor = 1.0",
            "logarithm=end.dimension == p,": "logarithm=False,",
        },
    ),
    "(10)": Row(
        ("[0.5-3]", "[5.0-10]"),
        {
            "shrink = 1 - (d - 1) / (2 * kappa)": "shrink = 1 - (d - 1) / kappa",
            "zeroth + density.log_gradient(zeroth) / kappa[:, None]": "zeroth",
        },
    ),
    "(11)": Row(
        ("[0.5]", "[10000.0]"),
        {
            "return float(np.sqrt(np.log1p(b) / b))": "return float(np.log1p(b) / b)",
            "self.M * (self.amplitude(beta) * grown + fallen)": "self.M * self.amplitude(beta) * grown + fallen",
            "fallen = np.exp(-np.where(": "fallen = np.exp(np.where(",
        },
    ),
    "(12)": Row(
        ("[shares0]",),
        {
            "weights=self.masses / self.masses.sum(),": "weights=None,",
            "return engine(head.beta * head.logit_direction(x)": "return engine(head.logit_direction(x)",
            "return project(working, push).to(x.dtype)": "return push.to(x.dtype)",
        },
    ),
    "(13)": Row(
        ("",),
        {
            "max(0.5 * np.log(beta) / contraction, 0.0)": "max(np.log(beta) / contraction, 0.0)",
            "start, push = asymmetry / np.sqrt(beta), drift": "start, push = asymmetry, drift",
            "np.log((FAR + push) / (start + push)) / growth": "np.log((FAR + push) / (start + push))",
        },
    ),
    "(14)": Row(
        ("[BERT]",),
        {
            "query=(d / np.sqrt(k)) * centred": "query=np.sqrt(d / k) * centred",
            "query_shift=np.sqrt(d / k) * (query @ shift + query_bias)": "query_shift=np.sqrt(d / k) * query_bias",
            "value=root * centred(value * gamma)": "value=root * centred(value)",
            "output, value @ shift + value_bias)": "output, value_bias)",
        },
    ),
    "(15)": Row(
        ("[BERT]",),
        {
            "layer.head_shift.sum(0) + layer.output_bias": "layer.head_shift.sum(0)",
            "_centred(self.gamma * tokens + self.shift, -1)": "_centred(self.gamma * tokens, -1)",
            "self.layer.norm.past(u, size) + self.update(seen)": "self.layer.norm.past(u, size) - self.update(seen)",
        },
    ),
    "(15′)": Row(
        ("[ViT]",),
        {
            "tokens = np.sqrt(u.shape[-1]) * size[:, None] * u": "tokens = np.sqrt(u.shape[-1]) * u",
            "layer.head_shift.sum(0) + layer.output_bias": "layer.output_bias",
        },
    ),
    "(16)": Row(
        ("[False]", "[True]"),
        {
            "seen.mean + law.mass)": "seen.mean)",
            "seen.tokens + law.share[:, None] * seen.covariance": "seen.tokens + 0 * seen.covariance",
        },
    ),
    "(17)": Row(
        ("[1.5]",),
        {
            "np.where(cold, edge / safe, 1.0)": "np.where(cold, 1.0, 1.0)",
            "sigma * edge - edge**2 / 2, sigma**2 / 2": "sigma * edge, sigma**2 / 2",
        },
    ),
    "(17′)": Row(
        ("[0.3-2.0]", "[3.0-3.0]"),
        {
            "_pull(-beyond) - beyond": "_pull(-beyond) + beyond",
            "_at_most_one(twice - 2 * once": "_at_most_one(twice - once",
            "sigma**2 / 2 - sigma * place + log_ndtr": "sigma**2 - sigma * place + log_ndtr",
        },
    ),
    "(17″)": Row(
        ("[0.3-1.0]",),
        {
            "1 - place * _pull(place) - _pull(place) ** 2": "1 - place * _pull(place)",
            "best - width * distance": "best - distance",
            "-pull * (2 * pull**2 + 3 * place * pull": "-pull * (2 * pull**2 + place * pull",
        },
    ),
    "(18)": Row(
        ("[False]", "[True]"),
        {
            "logs.append((np.log(seen.count) + ": "logs.append((",
            "logs.append(best_logit[:, None])": "logs.append(0 * best_logit[:, None])",
            "scale * (self.variance - above**2 / others)": "scale * self.variance",
            "self.tokens + step,": "self.tokens + 0 * step,",
        },
    ),
    "(19)": Row(
        ("",),
        {
            "2 * np.maximum(exponent, 0.0) / self.beta), low": "1.8 * np.maximum(exponent, 0) / self.beta), low",
            "value=PAD * float(np.linalg.norm(V, 2))": "value=PAD * float(np.linalg.norm(B, 2))",
            "push = PAD * self.value * error\n": "push = PAD * 1.1 * self.value * error\n",
        },
    ),
    "Λ of the uniform density, section 13": Row(
        ("[2]", "[5]"),
        {"log_scaled_normaliser(kappa, d), 0.0) * PAD": "log_scaled_normaliser(kappa, d), 0.0) * 0.9"},
    ),
    "(19′)": Row(
        ("[0.01-2000.0]", "[1e-05-2000.0]"),
        {
            "lambert_of_exp(exponent - 1 - mean)": "lambert_of_exp(exponent - 2 - mean)",
            "np.sqrt(2 * height) * (1 - 0.5 / height)": "np.sqrt(2 * height) * (1 - 1 / height)",
            "0.5 + lambert_of_exp(": "0.0 + lambert_of_exp(",
        },
    ),
    "(20)": Row(
        ("[symmetric-2-two atoms]", "[subspace-3-circle]", "[normal-4-cap]"),
        {
            "np.sin(2 * most)) / 2 - 1e-15": "np.sin(2 * most)) - 1e-15",
            "z = np.clip(push / (2 * pull),": "z = np.clip(push / pull,",
            "sqrt(2 * np.maximum(exponent, 0.0) / self.beta), low": "sqrt(np.maximum(exponent, 0) / self.beta), low",
        },
    ),
    "(21)": Row(
        ("",),
        {
            "rate = np.where(self.met, wide + push, -np.inf).max(1) + self.shape": "rate = 0.1 * self.shape",
        },
    ),
    "ingredients of the growth, section 13": Row(
        ("[2-1]", "[3-2]", "[5-1]"),
        {
            "spread = PAD * 2 * _stretch(": "spread = PAD * 0.5 * _stretch(",
            "worst = np.where(met, PAD * 2 * w / inside": "worst = np.where(met, PAD * 1.9 * w / inside",
            "np.where(along > 0, -(d - 1) * along / outer": "np.where(along > 0, -(d - 1) * along / inner",
            "outside = np.cos(angle) * (size[0] + room)": "outside = 0 * np.cos(angle) * (size[0] + room)",
        },
    ),
    "shrinking caps, section 13": Row(
        ("",),
        {
            "self.angles = self.angles - h * speed": "self.angles = self.angles - 0 * speed",
            "(self.fastest * slope + self.sides.defect) / low + push": "0.5 * self.fastest * slope / low + push",
        },
    ),
    "(22)": Row(
        ("[True]",),
        {
            "V @ (cloud.mean + layer[0].beta * shift)": "V @ cloud.mean",
            "layer[0].beta * V @ spread": "V @ spread",
        },
    ),
    "(23)": Row(
        ("[3-0.5-symmetric]", "[16-1.0-random]"),
        {
            "centre = law.length * shift + stretch": "centre = 0.5 * shift + stretch",
            "(stretch + np.outer(shift, law.mean)) @ law.spread": "stretch @ law.spread",
            "spread - 2 * growth * law.spread": "spread - growth * law.spread",
        },
    ),
    "participation of a finite cloud, section 12": Row(
        ("[0.3-1000-1000]", "[1.0-10-4000]"),
        {
            "raised**2 * np.exp(-raised)": "raised * np.exp(-raised)",
            "(1 - met) ** (count - 1)": "(1 - met) ** count",
        },
    ),
    "error of the closure, section 12": Row(
        ("[0.1-16-1000-sample]", "[0.3-64-200-population]"),
        {
            "known += rest * (1 + tilt[:, 0] ** 2)": "known += 0 * rest",
            "law.participation * (rest + along": "law.participation * (along",
        },
    ),
    "rest points of the warm flow, section 12": Row(
        ("[0-True]", "[1-False]"),
        {
            "float(value - np.linalg.eigvals(frame": "float(-value - np.linalg.eigvals(frame",
            "along / (root - poles[group])": "along / (root + poles[group])",
        },
    ),
    "moments of a Gaussian put on the sphere, section 12": Row(
        ("[3]",),
        {
            "return narrow * centre, narrow * values, mass": "return narrow * centre, values, mass",
            "moment += 2 * inside * (": "moment += inside * (",
        },
    ),
    "time in the clock, section 3": Row(
        ("",),
        {"chebyshev.chebint(coefficients.T, lbnd=-1) * (h / 2)": "chebyshev.chebint(coefficients.T, lbnd=-1) * h"},
    ),
    "limit of a Jordan block, section 4": Row(
        ("[3-2]", "[3-3]"), {"for matrix in self._map[::-1]:": "for matrix in self._map:"}
    ),
    "period of a rotation, section 4": Row(
        ("[2]", "[3]"),
        {
            "return 2 * half / omega, certain": "return half / omega, certain",
            "turn[:, 0] / omega])": "turn[:, 0]])",
        },
    ),
    "which eigenvalues are at μ, section 4": Row(
        ("[1e-12-True]", "[1e-15-False]"),
        {
            "eta = BACKWARD_ERROR * epsilon\n    # A": "eta = np.sqrt(BACKWARD_ERROR * epsilon)\n    # A",
            "BACKWARD_ERROR = 100.0": "BACKWARD_ERROR = 0.1",
        },
    ),
    "a-priori constants of (11), section 7": Row(
        ("",),
        {
            "rates(heads, p=p).guaranteed": "rates(heads, p=p).at_most",
            "C=unit * derivative.largest,": "C=unit * derivative.spread,",
        },
    ),
    "best time of (11), section 7": Row(("",), {"* self.C)) / (self.C + self.c)": "* self.C)) / self.C"}),
    "certificate, section 7": Row(
        ("[0-euler-True]", "[1-euler-True]", "[2-euler-True]"),
        {
            "self.theta * np.exp(rate * arc.h) + carried": "self.theta + carried",
            "total = defects.sum(0)": "defects = 0 * defects; total = defects.sum(0)",
            "by_path = PAD * total(to_path + rest)": "by_path = PAD * total(to_path)",
            "self.unit = Derivative.scaled(A, B)": "self.unit = Derivative.scaled(A, V)",
        },
    ),
    "certificate by sides, section 7": Row(
        ("[0.02]", "[0.1]", "[0.3]"),
        {
            "speed = self.gap / most": "speed = self.gap / least",
            "pushed = defects + piece": "pushed = 0.9 * defects + piece",
            "rate = -speed * np.cos(": "rate = speed * np.cos(",
            "np.exp(-speed * arc.h) * np.tan(": "np.exp(-1.1 * speed * arc.h) * np.tan(",
        },
    ),
    "Λ along a run, section 7": Row(
        ("[800-3-30.0-False]", "[50-2-10000.0-True]", "[120-6-300.0-False]"),
        {
            "(torch.linalg.vector_norm(p, dim=-1) - masses)": "0.9 * (torch.linalg.vector_norm(p, dim=-1) - masses)",
            "else mass - math.log(y.shape[-2])": "else mass",
            "logs[member, row] = shift + np.log(sums[0])": "logs[member, row] = np.log(sums[0])",
        },
    ),
    "slope of the expansion rate, section 7": Row(
        ("[0-True]", "[1-True]", "[2-True]", "[3-False]", "[4-False]"),
        {
            "return 4 * even / least + ": "return ",
            "+ turned) / least**3 + ": ") / least**3 - ",
        },
    ),
    "distance at the start, section 13": Row(
        ("[3-1-2.0]", "[6-2-3.0]"),
        {"np.sin(t) ** (d - m - 1) * np.cos(t) ** (m - 1)": "np.sin(t) ** (d - m) * np.cos(t) ** (m - 1)"},
    ),
    "worst key at an angle, section 13": Row(
        ("[3]",),
        {
            "float(np.linalg.eigvalsh(inner - down)[0]) - spent": "float(np.linalg.eigvalsh(inner)[0]) - spent",
            "left, right = B.T @ E, B.T @ W": "left, right = B @ E, B @ W",
        },
    ),
    "comparison equation, section 13": Row(
        ("[0.02]", "[0.1]"),
        {
            "minimum(self.angles + h * rate + 1e-15": "minimum(self.angles + 1.1 * h * rate + 1e-15",
            "errors[self.number(most)], below, above)": "0.9 * errors[self.number(most)], below, above)",
        },
    ),
    "critical angle, section 13": Row(
        ("",),
        {
            "kept = ~np.logical_or.accumulate(self.lost)": "kept = np.logical_or.accumulate(self.lost)",
        },
    ),
    "tube above W, section 13": Row(
        ("[2.0]",),
        {
            "far = np.minimum(self.angles + self.drift, ": "far = np.minimum(self.angles / 2 + self.drift, ",
            "float(masses @ tokens.costs(p)) ** (1 / p)": "float(masses @ tokens.costs(p))",
        },
    ),
    "expansion rate ℓ, section 7": Row(
        ("",),
        {
            "self.push * (k - 1 / k) / 2) / low": "self.push * (k + 1 / k) / 2) / low",
            "return float(self.spectrum[-1] - self.spectrum[0])": "return float(self.spectrum[-1])",
        },
    ),
    "stability in the start, section 7": Row(
        ("",),
        {
            "np.exp(ell * grid) * distances[0]": "np.exp(0.9 * ell * grid) * distances[0]",
            "ell = unit * derivative.largest": "ell = 2 * unit * derivative.largest",
        },
    ),
    "freezing temperature κ*, section 8": Row(
        ("[1000-3-1000.0]", "[128-384-44]"), {"return float(twice - 2 * once": "return float(twice - once"}
    ),
    "two effects of finite n, section 8": Row(
        ("",),
        {
            "np.arctan2(np.linalg.norm(x - inside @ self.basis, axis=1), ": "np.arctan2(np.zeros(len(x)), ",
            "self.weights[x @ self.basis[0] > 0].sum()) - self.share": "self.weights[x @ self.basis[0] > 0].sum())",
        },
    ),
    "condition of the cluster flow, section 9": Row(
        ("",),
        {
            "across = float(np.linalg.norm(key - (z @ key) * z))": "across = float(np.linalg.norm(key))",
            "across * spread + np.linalg.norm(B, 2) * spread**2": "across * spread + np.linalg.norm(B, 2) * spread",
        },
    ),
    "cases of the terminal phase, section 9": Row(
        ("",),
        {
            "tightens = sign * pull > 0": "tightens = pull < 0",
            "(np.eye(len(z)), sign * V, 1.0)": "(np.eye(len(z)), V @ B.T, 1.0)",
            "return P @ (V - (z @ V @ z) * np.eye(len(z))) @ P": "return P @ V @ P",
        },
    ),
    "two atoms as target, section 10": Row(
        ("[0-2.0]", "[1-1.0]"), {"np.argsort(costs[:, 0] - costs[:, 1]": "np.argsort(costs[:, 0]"}
    ),
    "index coupling is optimal for symmetric A, section 10": Row(
        ("[values0-2.0]", "[values1-1.0]"),
        {
            "chords = torch.linalg.vector_norm(left - right": "chords = torch.linalg.vector_norm(left + right",
            "(costs / unit[..., None]) ** p).sum(-1) ** (1 / p)": "(costs / unit[..., None]) ** p).sum(-1)",
        },
    ),
    "temperature and value of a head, section 11": Row(
        ("[BERT]",),
        {
            "query / beta, key, Factored(": "query, key, Factored(",
            "return _centred(self.output, 1)": "return self.output",
        },
    ),
}
