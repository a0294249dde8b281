# Renders a job's templates as a director does: ruby render.rb JOB [INSTANCE] <PROPERTIES >FILES
#
# JOB is the job's folder, PROPERTIES the manifest's properties (JSON), FILES a hash of each file's path and content (JSON).
# INSTANCE is what else a template sees (JSON): the instance's spec, and links, each with instances and properties.
# A template sees the properties that the job's spec names, and no others, with the spec's defaults.
require 'erb'
require 'json'
require 'ostruct'
require 'yaml'

# What a template's code may call: p, if_p with else and else_if_p, and spec for what else it looks at.
class Context
  Unknown = Class.new(StandardError)

  # What if_p returns: the other case runs where the properties are not there.
  class Else
    def initialize(context, runs)
      @context = context
      @runs = runs
    end

    def else
      yield if @runs
    end

    def else_if_p(*names, &block)
      @runs ? @context.if_p(*names, &block) : self
    end
  end

  # A link's instances, and its properties by their names.
  class Link
    attr_reader :instances

    def initialize(link)
      @instances = link.fetch('instances').map { |each| OpenStruct.new(each) }
      @properties = link.fetch('properties', {})
    end

    def p(name)
      @properties.fetch(name) { raise Unknown, "Can't find property '#{name}' of the link" }
    end
  end

  attr_reader :spec

  def initialize(spec, properties, instance)
    @spec = OpenStruct.new(instance.fetch('spec', {}))
    @links = instance.fetch('links', {})
    @values = spec.fetch('properties', {}).to_h do |name, definition|
      given = name.split('.').reduce(properties) { |hash, key| hash.is_a?(Hash) ? hash[key] : nil }
      [name, given.nil? ? definition['default'] : given]
    end
  end

  # A property that the spec does not name is not there, whatever the manifest says.
  def p(names, *default)
    found = Array(names).map { |name| @values[name] }.compact.first
    return found unless found.nil?
    return default.first unless default.empty?

    raise Unknown, "Can't find property '#{Array(names).join("', or '")}'"
  end

  def if_p(*names)
    values = names.map { |name| @values[name] }
    return Else.new(self, true) if values.any?(&:nil?)

    yield(*values)
    Else.new(self, false)
  end

  def link(name)
    raise Unknown, "Can't find link '#{name}'" unless @links.key?(name)

    Link.new(@links[name])
  end

  def if_link(_name)
    Else.new(self, true)
  end

  def render(path)
    template = ERB.new(File.read(path), trim_mode: '-')
    template.filename = path
    template.result(binding)
  end
end

job = ARGV.fetch(0)
spec = YAML.load_file(File.join(job, 'spec'))
context = Context.new(spec, JSON.parse($stdin.read), JSON.parse(ARGV.fetch(1, '{}')))
puts JSON.generate(spec['templates'].to_h { |source, target| [target, context.render(File.join(job, 'templates', source))] })
