"""Programs that measure, and that make the library of instances; they are not part of the package."""
