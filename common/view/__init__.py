"""Every plot and every text table; only its plotting modules import matplotlib."""
