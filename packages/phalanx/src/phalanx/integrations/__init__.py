"""What connects the grid with frameworks: each module needs the framework that it is named after."""
