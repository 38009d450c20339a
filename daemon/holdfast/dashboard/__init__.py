"""The dashboard: pages for a browser, made of the API's answers."""
