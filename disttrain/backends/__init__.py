"""Arrays, devices and kernels. Knows no tensor and no graph."""
