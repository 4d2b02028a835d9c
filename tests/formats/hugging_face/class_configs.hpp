#pragma once
// What tests of types share: the models of configs, the words of refusals, and the configs that transformers' classes have by default.

#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "plan/text/errors.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::formats::class_configs {

using Json = nlohmann::ordered_json;

inline ModelSpec model_of(const Json& json) {
    return read_hugging_face(json, "test", "config.json").model;
}

/// What `work` throws as ConfigError; "accepted" where it does not.
template <class Work>
std::string message_of(const Work& work) {
    try {
        work();
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

inline std::string refusal_of(const Json& json) {
    return message_of([&] { (void)model_of(json); });
}

/// Types with a config of five layers each, and the parameters of what transformers builds from it ("config", "parameters").
inline Json class_counts() {
    std::ifstream file(tests::data_folder() + "/formats/counts/class_counts.json");
    return Json::parse(file).at("types");
}

inline Json class_config(const std::string& type) {
    return class_counts().at(type).at("config");
}

}  // namespace mgplan::formats::class_configs
