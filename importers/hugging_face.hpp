#pragma once
// Hugging Face config.json -> ModelSpec. Field names and defaults of each architecture as in the transformers library's
// configuration_*.py and modeling_*.py.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "importers/job.hpp"

namespace mgplan::importers {

/// Whether the object holds a field by which configs name a model, its layers or its width.
[[nodiscard]] bool looks_like_hugging_face(const nlohmann::ordered_json& json);

/// Reads a config. Fields it does not know are normal and ignored; of nested configs (multimodal models) the text part
/// is read. An unknown architecture is read as Llama-like, which becomes an assumption, when nothing essential is
/// missing. "_sequence" and "_global_batch" become the model's defaults, "_source" its source. Throws ConfigError with
/// all problems: missing or absurd sizes, encoder models, contradictions.
[[nodiscard]] Job read_hugging_face(const nlohmann::ordered_json& json, const std::string& name, const std::string& where);

}  // namespace mgplan::importers
