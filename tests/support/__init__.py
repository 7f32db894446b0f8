"""What several tests share: builders of tables, graphs and models."""
