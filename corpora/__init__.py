"""What is searched: the sources that become documents, each kind in a package of its own."""
