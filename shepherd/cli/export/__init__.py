"""shep-export: what its command line may say, and the runs behind it."""
