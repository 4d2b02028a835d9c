# Puts the JSON, CSS, HTML and JavaScript files of a folder into the binary: mgplan_embed(OUTPUT FOLDER FUNCTION) writes a source
# file that defines `std::span<const mgplan::EmbeddedFile> mgplan::FUNCTION()`, one entry per file, in alphabetical order.
function(mgplan_embed output folder function)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.json ${folder}/*.css ${folder}/*.html ${folder}/*.js)
  list(SORT files)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} "-DFOLDER=${folder}" -DFUNCTION=${function} -P ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    VERBATIM)
endfunction()
