"""What all command lines share: options, selectors, tables, progress, logging, exit status."""
