"""A local page to play with: the explorer. It needs the packages of the extra ``explore``."""

from frostline.extras import need

need("fastapi", extra="explore")
need("uvicorn", extra="explore")
