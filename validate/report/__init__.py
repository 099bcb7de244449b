"""The report page and its plots: charts of what the commands answer, in one HTML file. No modelling."""
