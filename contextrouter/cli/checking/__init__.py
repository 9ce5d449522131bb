"""The command `contextrouter check`: whether all that the settings name works."""
