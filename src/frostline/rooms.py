"""The rooms of the house, in the order of their imports: a room imports from its own row and from earlier ones.

The test of imports and the table of CONTRIBUTING are made from this list, and so are digests of the code that results
depend on.
"""

ROWS: tuple[dict[str, str], ...] = (
    {
        "errors": "named failures that advise",
        "extras": "packages that only some parts need",
        "rooms": "this list",
        "moved": "old names of modules",
        "log": "the logger",
        "printable": "untrusted text, made safe for a terminal",
        "results": "base of all results: one line, a description, plain values",
        "progress": "reports of long work",
        "cancellation": "cooperative cancellation of long work",
        "compiled": "compiled loops (numba)",
        "arrays": "arrays in and out: numpy, torch, lists",
        "sphere": "unit vectors",
        "sample": "token distributions, quadrature",
        "attention": "a head",
    },
    {"files": "what any room needs of a disk: atomic writes, digests, JSON, suggestions for misspelt names"},
    {"theory": "what the mathematics predicts, no token moved"},
    {
        "dynamics": "what the tokens do: mean map and its engines, steppers, simulation",
        "transport": "how far apart two clouds are",
    },
    {"analysis": "what a run says about the theory"},
    {"plot": "figures as matplotlib axes", "report": "one offline HTML page"},
    {"runs": "a spec, a run directory, and what lies between"},
    {
        "experiments": "the paper's claims, each measured and judged",
        "encoders": "real models as Attention objects",
    },
    {
        "auditing": "an audit of one encoder, a comparison of two",
        "monitoring": "what normal text looks like to a model, and how to notice when text stops doing so",
        "web": "who may come in, how long they may take; a server that ends cleanly",
    },
    {
        "serving": "the detector over HTTP",
        "exploring": "a local page to play with",
        "sweeping": "many runs into one dataset",
    },
    {"doctor": "what is installed, which engines work"},
    {"cli": "the commands: parse, call, print", "__init__": "the public names", "__main__": "python -m frostline"},
)

SHOWING = frozenset({"plot", "report", "web", "serving", "exploring", "doctor", "cli", "__init__", "__main__"})
"""Rooms that show results and do not make them: another version of these makes no other result."""


def row_of(room: str) -> int:
    """The number of a room's row.

    Raises
    ------
    KeyError
        There is no such room.
    """
    for number, row in enumerate(ROWS):
        if room in row:
            return number
    raise KeyError(room)


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a source file, by the parts of its path inside the package."""
    return parts[0].removesuffix(".py")
