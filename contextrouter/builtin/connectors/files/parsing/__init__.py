"""Files of all common forms to text, by libraries; what is broken or encrypted is a reason, not a failure."""
