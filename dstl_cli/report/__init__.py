"""Reports: tables, plots, and the page with before and after."""
