"""Image classifiers: builders of the nets that papers define, and ResNet-8 in int8."""
