"""What a plan answers: the headline, its cases, and how sure it is."""
