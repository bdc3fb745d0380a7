"""What can be said of predictions: presence, calibration, verdict; scoring with labels is kept apart."""
