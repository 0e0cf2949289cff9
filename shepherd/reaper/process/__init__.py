"""reapd and its workers: listening, forking, confinement, and what a page that kills its parser costs."""
