"""The search for the least product of energy and delay: problems, engines, fronts and observers."""
