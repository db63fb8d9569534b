"""The console: the stats of all processes, and the page on the admin port that shows them."""
