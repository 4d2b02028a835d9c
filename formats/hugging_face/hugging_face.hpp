#pragma once
// Hugging Face config.json -> ModelSpec. Field names and defaults of each architecture as in the transformers library's
// configuration_*.py and modeling_*.py.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "formats/input/job.hpp"

namespace mgplan::formats {

/// True if the object holds a field by which configs name a model, its layers or its width.
[[nodiscard]] bool looks_like_hugging_face(const nlohmann::ordered_json& json);

/// Reads a config. Fields that a file leaves out have the defaults of its class (formats/hugging_face/model_types.hpp); fields that mgplan
/// does not read are listed in Job::unused_fields. Of nested configs (multimodal models) the text part is read. An unknown type is refused
/// with the nearest known ones and the fields that nothing here explains, unless `assume` ("llama") names the type to read it as: then
/// ModelSpec::assumed_architecture, an assumption and a note say so. "_sequence" and "_global_batch" become the model's defaults, "_source"
/// its source. Throws ConfigError with all problems: unknown types, missing or absurd sizes, encoder models, heads other than the output
/// layer, networks that no layer here describes, contradictions.
[[nodiscard]] Job read_hugging_face(const nlohmann::ordered_json& json, const std::string& name, const std::string& where,
                                    const std::string& assume = "");

}  // namespace mgplan::formats
