"""What lies on the disk: the folder, its manifest, the ranks' files, and plans as bytes."""
