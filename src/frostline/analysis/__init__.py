"""What a run says about the theory."""
