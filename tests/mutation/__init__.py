"""Mutation testing of the rooms that decide: which small changes of their code the tests notice."""
