"""python -m frostline"""

from frostline.cli import main

main()
