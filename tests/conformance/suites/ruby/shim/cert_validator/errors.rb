# Stands for a part of the gem cert_validator.
