"""The paper's statements and those beyond it, one file each."""
