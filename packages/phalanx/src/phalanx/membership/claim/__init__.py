"""How the mastership passes on when the master is gone."""
