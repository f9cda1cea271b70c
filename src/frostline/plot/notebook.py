"""The HTML by which a notebook shows a run: its status in words and its tokens as a picture."""

import base64
import html

from matplotlib.figure import Figure

from frostline.dynamics.simulation import Trajectory
from frostline.errors import FrostlineError
from frostline.plot.style import png_bytes
from frostline.plot.tokens import tokens


def trajectory_html(run: Trajectory) -> str:
    """The run as HTML: its status in words and its tokens as a picture.

    Parameters
    ----------
    run : Trajectory
        The run; one that cannot be drawn is shown with the reason.

    Returns
    -------
    str
        HTML with the picture inside.

    Examples
    --------
    >>> from frostline import Attention, simulate
    >>> head = Attention.from_matrices([[1.0, 0.0], [0.0, 0.5]], [[1.0, 0.0], [0.0, 1.0]], beta=100.0)
    >>> trajectory_html(simulate(head, [[0.6, 0.8]], until=1.0))[:6]
    '<p><b>'
    """
    text = f"<p><b>{html.escape(repr(run))}</b><br>{html.escape(run.message)}</p>"
    try:
        figure = tokens(run)[0].figure
        text += f"<p>{html.escape(run.regime.describe())}</p>"
    except FrostlineError as error:
        return f"{text}<p>{html.escape(str(error))}</p>"
    assert isinstance(figure, Figure)
    picture = base64.b64encode(png_bytes(figure)).decode()
    return f'{text}<img alt="tokens at the saved times" src="data:image/png;base64,{picture}">'
