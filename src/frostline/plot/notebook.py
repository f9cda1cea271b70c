"""A run as a notebook shows it: its status in words and its tokens as a picture."""

import base64
import html
import io

from matplotlib.figure import Figure

from frostline.dynamics.simulation import Trajectory
from frostline.errors import FrostlineError
from frostline.plot.tokens import tokens


def trajectory_html(run: Trajectory) -> str:
    """What a notebook shows for a run: its status in words and its tokens as a picture."""
    text = f"<p><b>{html.escape(repr(run))}</b><br>{html.escape(run.message)}</p>"
    try:
        figure = tokens(run)[0].figure
        text += f"<p>{html.escape(run.regime.describe())}</p>"
    except FrostlineError as error:
        return f"{text}<p>{html.escape(str(error))}</p>"
    buffer = io.BytesIO()
    assert isinstance(figure, Figure)
    figure.savefig(buffer, format="png", dpi=110)
    picture = base64.b64encode(buffer.getvalue()).decode()
    return f'{text}<img alt="tokens at the saved times" src="data:image/png;base64,{picture}">'
