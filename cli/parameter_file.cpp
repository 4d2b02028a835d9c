#include "cli/parameter_file.hpp"

#include <array>
#include <unordered_set>

#include <fmt/core.h>

#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

constexpr std::size_t kMostProblems = 20;
constexpr std::array kDtypes{Dtype::bf16, Dtype::fp16, Dtype::fp32, Dtype::fp8};

Dtype read_dtype(JsonReader& reader) {
    std::vector<std::string> names;
    for (const Dtype dtype : kDtypes) names.emplace_back(to_string(dtype));
    const std::size_t before = reader.problems().list().size();
    const std::string given = reader.text("dtype");
    if (reader.problems().list().size() > before) return Dtype::bf16;
    for (const Dtype dtype : kDtypes) {
        if (to_string(dtype) == given) return dtype;
    }
    reader.problems().add("{}: dtype = '{}' is not known; use {}", reader.where(), given.substr(0, 60), any_of_text(names));
    return Dtype::bf16;
}

std::int64_t read_numel(JsonReader& reader) {
    if (!reader.has("shape")) {
        reader.ignore("shape");
        reader.problems().add("{}: field 'shape' is missing; give a list of extents such as [4096, 1024]", reader.where());
        return 1;
    }
    std::int64_t numel = 1;
    for (const std::int64_t extent : reader.integers("shape", 1, model::kMaxBufferNumel)) {
        if (numel > model::kMaxBufferNumel / extent) {
            reader.problems().add("{}: shape makes more than {} elements; give a smaller one", reader.where(), model::kMaxBufferNumel);
            return 1;
        }
        numel *= extent;
    }
    return numel;
}

}  // namespace

NamedParameters read_parameter_list(std::string_view text, const std::string& where) {
    const nlohmann::ordered_json list = parse_json(text, where);
    if (!list.is_array())
        throw ConfigError(fmt::format("{} holds no list; write [{{\"name\":\"w\",\"shape\":[64,64],\"dtype\":\"bf16\"}}, …]", where));
    if (list.empty()) throw ConfigError(fmt::format("{} lists no parameters; give at least one", where));
    NamedParameters named;
    named.names.reserve(list.size());
    named.parameters.reserve(list.size());
    std::unordered_set<std::string> seen;
    Problems problems;
    for (std::size_t i = 0; i < list.size() && problems.list().size() < kMostProblems; ++i) {
        JsonReader reader(list[i], fmt::format("{}[{}]", where, i), problems);
        if (!list[i].is_object()) continue;
        std::string name = reader.text("name");
        model::BufferParameter parameter;
        parameter.numel = read_numel(reader);
        parameter.dtype = read_dtype(reader);
        parameter.shared_embedding = reader.boolean_or("shared_embedding", false);
        parameter.expert = reader.boolean_or("expert", false);
        reader.finish();
        if (!name.empty() && !seen.insert(name).second)
            problems.add("{}: name = '{}' stands in the list twice; give each parameter its own", reader.where(), name.substr(0, 100));
        named.names.push_back(std::move(name));
        named.parameters.push_back(parameter);
    }
    if (problems.list().size() >= kMostProblems) problems.add("{}: there may be more; the rest was not read", where);
    problems.throw_if_any();
    return named;
}

}  // namespace mgplan::cli
