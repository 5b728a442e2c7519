"""Names of disttrain_launcher. Made by scripts/stubs; not to be edited."""

__all__ = ['launch']
from disttrain_launcher.command.launch import launch as launch
