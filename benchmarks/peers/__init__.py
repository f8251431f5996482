"""The same job in lowwater and in the libraries people compare it with."""
