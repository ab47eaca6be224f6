# Stands for the gem cert_validator, which checks whether certificates were revoked.
class CertValidator
end
