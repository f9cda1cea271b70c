"""What the tokens do at finite temperature."""
