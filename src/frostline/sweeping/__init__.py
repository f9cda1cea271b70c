"""Many runs: their plan, the workers that run them (Dask), one Parquet dataset with their results."""
