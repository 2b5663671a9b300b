"""MQTT 5 and 3.1.1 as bytes and packets, and the control messages between our own processes."""
