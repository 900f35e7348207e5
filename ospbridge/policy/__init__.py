"""Acting from weights: networks of RLlib in numpy, ONNX models, the distributions over their actions."""
