# What the client and its tests expect of older versions of Ruby, I18n and RSpec.
require 'uri'
require 'i18n'
require 'rspec'

# Keyword arguments used to be a hash as well.
module HashAsOptions
  def t(key = nil, options = nil, **others)
    super(key, **(options || {}), **others)
  end
end
I18n.singleton_class.prepend(HashAsOptions)

module URI
  def self.escape(*arguments) = DEFAULT_PARSER.escape(*arguments)
  def self.unescape(*arguments) = DEFAULT_PARSER.unescape(*arguments)
end

# Newer ones ask errors for a method that this client uses otherwise.
require 'rspec/matchers'
class RSpec::Matchers::BuiltIn::RaiseError
  private

  def actual_error_message
    @actual_error&.message
  end
end
