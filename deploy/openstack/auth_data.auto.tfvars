# Who you are in the cloud. Leave both empty to use the variables of your OpenStack RC file (OS_USERNAME, OS_PASSWORD, ...).
auth_data = ({
  user_name = ""
  password  = ""
})
