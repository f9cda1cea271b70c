"""What the mathematics predicts; no token is moved by interaction here."""
