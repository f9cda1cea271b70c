"""The paper reproduced: claims, their measurement, their verdicts, one page."""
