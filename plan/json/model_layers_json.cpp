#include "plan/json/model_layers_json.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json/enum_words.hpp"
#include "plan/json/model_composition_json.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parts/model_parts.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kVersion = 2;
constexpr std::int64_t kLargestInteger = ModelLimits::part_size;
constexpr double kLargestReal = ModelLimits::rotary_base;

template <class T>
constexpr bool kIsVariant = false;
template <class... Kinds>
constexpr bool kIsVariant<std::variant<Kinds...>> = true;
template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

/// The list of each layer's kind has the name by which files are known.
constexpr std::string_view field_of(std::string_view member) {
    return member == "kind_of_layer" ? "layers" : member;
}

template <class T>
void add_members(const T& value, Json& json);

template <class T>
Json json_of(const T& value) {
    if constexpr (kIsVariant<T>) {
        return std::visit(
            [](const auto& kind) {
                Json json{{"kind", std::decay_t<decltype(kind)>::kKind}};
                add_members(kind, json);
                return json;
            },
            value);
    } else if constexpr (kIsOptional<T>) {
        return json_of(*value);
    } else if constexpr (std::is_same_v<T, std::vector<std::uint16_t>>) {
        return runs_to_json(value);
    } else if constexpr (kIsList<T>) {
        Json json = Json::array();
        for (const auto& entry : value) json.push_back(json_of(entry));
        return json;
    } else if constexpr (std::is_enum_v<T>) {
        return word_of(value);
    } else if constexpr (HasMembers<const T>) {
        Json json = Json::object();
        add_members(value, json);
        return json;
    } else {
        return value;
    }
}

/// Adds the members that differ from those of a default value.
template <class T>
void add_members(const T& value, Json& json) {
    const T by_default{};
    std::vector<bool> differs;
    const auto field = [&](std::string_view name, const auto& member, const auto& other) {
        if (member != other) json[std::string(field_of(name))] = json_of(member);
    };
    T::visit_members(value, [&](std::string_view name, const auto& member) {
        T::visit_members(by_default, [&](std::string_view other_name, const auto& other) {
            if constexpr (std::is_same_v<decltype(member), decltype(other)>) {
                if (name == other_name) field(name, member, other);
            }
        });
    });
}

template <class T>
T read_object(const Json& json, const std::string& where, Problems& problems);

/// "model.json: kinds[0]", then "model.json: kinds[0].mixer".
std::string place_of(const JsonReader& reader, std::string_view field, bool at_top) {
    return fmt::format("{}{}{}", reader.where(), at_top ? ": " : ".", field);
}

/// The alternative of which an object names the kind.
template <class Variant, std::size_t kAlternative = 0>
std::optional<Variant> read_kind(const Json& json, const std::string& kind, const std::string& where, Problems& problems,
                                 std::vector<std::string>& known) {
    if constexpr (kAlternative == std::variant_size_v<Variant>) {
        const std::string meant = did_you_mean(kind, known);
        problems.add("{}: kind '{}' is not known; {}", where, kind.substr(0, 40),
                     meant.empty() ? "use " + any_of_text(known) : meant + " All kinds: " + any_of_text(known));
        return std::nullopt;
    } else {
        using Kind = std::variant_alternative_t<kAlternative, Variant>;
        known.emplace_back(Kind::kKind);
        if (kind == Kind::kKind) return read_object<Kind>(json, where, problems);
        return read_kind<Variant, kAlternative + 1>(json, kind, where, problems, known);
    }
}

template <class T>
void read_member(JsonReader& reader, std::string_view name, T& member, bool at_top) {
    if constexpr (std::is_same_v<T, bool>) {
        member = reader.boolean_or(name, member);
    } else if constexpr (std::is_integral_v<T>) {
        member = static_cast<T>(reader.integer_or(name, member, 0, std::min<std::int64_t>(kLargestInteger, std::numeric_limits<T>::max())));
    } else if constexpr (std::is_same_v<T, double>) {
        member = reader.real_or(name, member, 0, kLargestReal);
    } else if constexpr (std::is_same_v<T, std::string>) {
        member = reader.text_or(name, member);
    } else if constexpr (std::is_enum_v<T>) {
        member = read_word(reader, name, member);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
        member = reader.texts(name);
    } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
        member = reader.integers(name, 0, kLargestInteger);
    } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
        if (reader.has(name)) member = reader.integer(name, 0, kLargestInteger);
        reader.ignore(name);
    } else if (const Json* const json = reader.member(name)) {
        const std::string where = place_of(reader, name, at_top);
        if constexpr (std::is_same_v<T, std::vector<std::uint16_t>>) {
            member = runs_from_json(*json, reader.where(), reader.problems());
        } else if constexpr (kIsList<T>) {
            if (!json->is_array() || json->size() > ModelLimits::layer_kinds)
                reader.problems().add("{}: give a list of at most {} objects", where, ModelLimits::layer_kinds);
            else
                for (std::size_t i = 0; i < json->size(); ++i)
                    member.push_back(read_object<typename T::value_type>((*json)[i], fmt::format("{}[{}]", where, i), reader.problems()));
        } else if constexpr (kIsOptional<T>) {
            using Value = typename T::value_type;
            if constexpr (kIsVariant<Value>) {
                JsonReader kind(*json, where, reader.problems());
                std::vector<std::string> known;
                if (json->is_object()) member = read_kind<Value>(*json, kind.text("kind"), where, reader.problems(), known);
            } else {
                member = read_object<Value>(*json, where, reader.problems());
            }
        } else {
            member = read_object<T>(*json, where, reader.problems());
        }
    }
}

template <class T>
T read_object(const Json& json, const std::string& where, Problems& problems) {
    T value;
    JsonReader reader(json, where, problems);
    if constexpr (requires { T::kKind; }) reader.ignore("kind");
    constexpr bool kAtTop = std::is_same_v<T, Model>;
    if constexpr (kAtTop) reader.ignore("version");
    T::visit_members(value, [&](std::string_view name, auto& member) { read_member(reader, field_of(name), member, kAtTop); });
    reader.finish();
    return value;
}

void check_kinds(const Model& model, const std::string& where, Problems& problems) {
    std::vector<bool> used(model.kinds.size());
    const auto use = [&](std::size_t kind, std::string_view by) {
        if (kind < used.size())
            used[kind] = true;
        else
            problems.add("{}: {} name kind {} of {}; count kinds from 0", where, by, kind, used.size());
    };
    std::vector<std::uint16_t> distinct = model.kind_of_layer;
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (const std::uint16_t kind : distinct) use(kind, "layers");
    if (model.prediction) use(model.prediction->kind, "layers of prediction");
    if (model.kind_of_layer.empty()) problems.add("{}: layers is missing or empty; give [[kind, layers], …]", where);
    for (std::size_t kind = 0; kind < used.size(); ++kind) {
        const Layer& layer = model.kinds[kind];
        if (!used[kind]) problems.add("{}: kinds[{}] is the kind of no layer; remove it", where, kind);
        if (!layer.counted.empty())
            problems.add(
                "{}: kinds[{}].counted holds tensors that are counted alone, which files of version 2 cannot bring; give the model's "
                "config.json",
                where, kind);
        else if (!layer.mixer && !layer.feed_forward)
            problems.add("{}: kinds[{}] has neither mixer nor feed_forward; give one of them", where, kind);
    }
}

/// "/kinds/1/mixer/scores/softcap" -> "kinds[1].mixer.scores.softcap"
std::string shown_path(const std::string& pointer) {
    std::string shown;
    for (std::size_t begin = 1; begin < pointer.size();) {
        const std::size_t end = std::min(pointer.find('/', begin), pointer.size());
        const std::string step = pointer.substr(begin, end - begin);
        const bool is_index = step.find_first_not_of("0123456789") == std::string::npos;
        shown += is_index ? "[" + step + "]" : (shown.empty() ? "" : ".") + step;
        begin = end + 1;
    }
    return shown;
}

/// The first value in which an object differs from another: ".mixer.scores.softcap = 30, where other layers have its default".
std::string first_difference(const Json& one, const Json& other) {
    const Json ours = one.flatten(), theirs = other.flatten();
    const auto shown = [](const Json& all, const std::string& path) {
        return all.contains(path) ? shown_json(all.at(path)) : std::string("its default");
    };
    for (const Json* all : {&ours, &theirs}) {
        for (const auto& [path, value] : all->items()) {
            if (ours.contains(path) && theirs.contains(path) && ours.at(path) == theirs.at(path)) continue;
            return fmt::format("{} = {}, where other layers have {}", shown_path(path), shown(ours, path), shown(theirs, path));
        }
    }
    return "";
}

/// The first value of a model that another has not.
std::string first_difference(const Model& model, const Model& other) {
    for (std::size_t layer = 0; layer < std::min(model.kind_of_layer.size(), other.kind_of_layer.size()); ++layer) {
        const std::uint16_t kind = model.kind_of_layer[layer];
        const Layer &ours = model.kinds[kind], &theirs = other.kinds[other.kind_of_layer[layer]];
        if (ours != theirs) return fmt::format("kinds[{}].{}", kind, first_difference(json_of(ours), json_of(theirs)));
    }
    return first_difference(layers_to_json(model), layers_to_json(other));
}

/// Throws ConfigError for sizes of layers that are out of range.
void check_sizes_of_kinds(const ModelSpec& model, const std::string& where) {
    Problems problems;
    for (const NamedLayer& kind : model.kinds) {
        for (const LayerPart& part : composition_of(with_fields(model, kind.layer, 0), model.hidden).parts)
            check_part(part, fmt::format("{}: layers of kind '{}'", where, kind.name), problems);
    }
    problems.throw_if_any();
}

}  // namespace

Json adapters_to_json(const Adapters& adapters) {
    return json_of(adapters);
}

Adapters adapters_from_json(const Json& json, const std::string& where, Problems& problems) {
    return read_object<Adapters>(json, where, problems);
}

Json layers_to_json(const Model& model) {
    Json json{{"version", kVersion}};
    add_members(model, json);
    return json;
}

Model layers_from_json(const Json& json, const std::string& where) {
    Problems problems;
    const Json& version = json.at("version");
    if (version != kVersion)
        throw ConfigError(
            fmt::format("{}: version = {} is not known; give {}, or none for a file of version 1", where, shown_json(version), kVersion));
    Model model = read_object<Model>(json, where, problems);
    if (problems.list().empty()) check_kinds(model, where, problems);
    problems.throw_if_any();
    // In the order of their first layers, equal ones as one.
    std::vector<Layer> kinds;
    LayerKindIndex index(kinds);
    for (std::uint16_t& kind : model.kind_of_layer) kind = index.index_of(model.kinds[kind]);
    if (model.prediction) model.prediction->kind = index.index_of(model.kinds[model.prediction->kind]);
    model.kinds = std::move(kinds);
    return model;
}

ModelSpec spec_from_layers_json(const Json& json, const std::string& where) {
    const Model model = layers_from_json(json, where);
    std::string lost;
    const auto describes = [&](const ModelSpec& spec) {
        check_sizes_of_kinds(spec, where);
        validate(spec, where);
        if (!spec.kinds.empty() && !has_computed_kinds(spec)) return false;
        const Model described = typed_model(spec);
        if (described == model) return true;
        if (lost.empty()) lost = first_difference(model, described);
        return false;
    };
    if (auto spec = spec_of_fields(model); spec && describes(*spec)) {
        check_adapters(*spec, where + ": adapters");
        return *std::move(spec);
    }
    if (ModelSpec spec = spec_of_kinds(model); describes(spec)) return spec;
    if (lost.empty())
        throw ConfigError(
            fmt::format("{}: no layer here computes one of its kinds; change a kind, or give the model's config.json", where));
    throw ConfigError(fmt::format("{}: {}; layers that differ in it have no prediction yet: give all the same value", where, lost));
}

}  // namespace mgplan
