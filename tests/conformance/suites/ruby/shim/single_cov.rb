# Stands for the gem single_cov, which measures coverage.
module SingleCov
  def self.method_missing(*) = nil
  def self.respond_to_missing?(*) = true
end
