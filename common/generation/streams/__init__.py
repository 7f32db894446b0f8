"""Token streams under load: requests with a prompt and an answer, the policies that serve them, figures per token."""
