"""Two checkpoints compared, over the whole artefact."""
