"""The languages whose rules of fact, command and time are known, each as one file of data."""
